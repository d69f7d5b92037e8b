"""Draw the pictures of README from the recordings that demo/ ships: `.venv/bin/python docs/pictures/make.py`."""

from pathlib import Path

from ddltop.sources.replay import read_end
from ddltop.tui.picture import picture_svg
from ddltop.tui.view import View

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "demo" / "recordings"

PICTURES = (
    ("straggler-2-ranks.ddltop", "overview.svg", 100, 26),
    ("simulated-16-ranks.ddltop", "wide.svg", 132, 44),
)


def main() -> None:
    """Write every picture."""
    for recording, picture, width, height in PICTURES:
        view = View(snapshot=read_end(RECORDINGS / recording), is_replay=True)
        svg = picture_svg(view, width=width, height=height)
        Path(__file__).with_name(picture).write_text(svg)
        print(f"{picture}: {len(svg):,} bytes")


if __name__ == "__main__":
    main()
