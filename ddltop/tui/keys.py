"""The one registry of keys: bindings, help and footer are made from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key, the action of the app it starts, and its line of help; `footer` is shown at the bottom when not empty."""

    keys: str  # Textual's names, comma-separated
    shown: str
    action: str
    help: str
    footer: str = ""


KEYS: tuple[Key, ...] = (
    Key("q,ctrl+c", "q", "leave", "quit; the run and its recording go on", "quit"),
    Key("question_mark", "?", "show_help", "this help", "help"),
    Key("d", "d", "show_findings", "all findings with their evidence, and back", "findings"),
    Key("p,space", "p Space", "pause", "pause the screen (the run goes on), and back", "pause"),
    Key("s", "s", "sort", "sort ranks: latest first, by number, by step time", "sort"),
    Key("j,down", "j Down", "scroll(1)", "scroll down"),
    Key("k,up", "k Up", "scroll(-1)", "scroll up"),
    Key("r", "r", "interval", "refresh every 0.5, 1, 2 or 5 seconds", "rate"),
    Key("E", "E", "export", "save this screen as SVG and text here", "export"),
    Key("escape", "Esc", "to_overview", "back to the overview"),
)
