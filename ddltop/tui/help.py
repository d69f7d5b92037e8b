"""The help page: what is on the screen in five lines, and every key."""

from rich.text import Text

from ddltop.presentation.parts import Role
from ddltop.tui.canvas import line
from ddltop.tui.keys import KEYS
from ddltop.tui.look import Look

ABOUT = (
    "SPEED-UP: measured; what the model predicts for this network; N x",
    "STEP: where the typical rank's step goes; hidden comm costs nothing",
    "OVER IDEAL: why a step is longer than one worker's; parts add up",
    "FINDINGS: what stands out, who, why, and what to do next",
    "RANK: late: how much later than the first it joins the all-reduce",
)
_ROLES = (
    (Role.INPUT, "input"),
    (Role.COMPUTE, "forward"),
    (Role.BACKWARD, "backward"),
    (Role.HIDDEN, "hidden comm"),
    (Role.WAIT, "wait for late ranks"),
    (Role.TRANSFER, "exposed transfer"),
    (Role.COLLECTIVE, "other collectives"),
    (Role.UPDATE, "update"),
    (Role.REST, "rest"),
)


def help_page(width: int, look: Look) -> list[Text]:
    """Draw the page."""
    lines = [line((" ON THE SCREEN", look.title))]
    for sentence in ABOUT:
        name, _, rest = sentence.partition(":")
        text = line((f"   {name:<12}", look.number), (rest.strip(), look.text))
        lines.append(text)
    legend = line(("   ", "none"))
    for role, label in _ROLES:
        legend.append(f"{look.glyph(role) * 2} ", look.roles[role])
        legend.append(f"{label}  ", look.dim)
        if legend.cell_len > width - 22:
            lines.append(legend)
            legend = line(("   ", "none"))
    lines += [legend, line(), line((" KEYS", look.title))]
    lines += [line((f"   {key.shown:<12}", look.number), (key.help, look.text)) for key in KEYS]
    return lines
