"""How the screen looks: a style and a glyph per meaning. One accent, and only for what is wrong.

Styles name colours of the 256-colour palette, which SSH sessions usually have; without colour, bold, dim and
reverse carry what they can and the glyphs the rest.
"""

from dataclasses import dataclass, field, replace

from ddltop.presentation.parts import ASCII_GLYPHS, GLYPHS, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Styles (rich syntax) and glyphs of one theme."""

    roles: dict[Role, str]
    text: str
    dim: str
    title: str
    number: str
    accent: str  # what is wrong
    warn: str
    good: str
    bar: str  # header and footer
    key: str
    marker: str
    ascii_only: bool = False
    glyphs: dict[Role, str] = field(default_factory=lambda: GLYPHS)

    def glyph(self, role: Role) -> str:
        """Give the glyph of a part."""
        return self.glyphs[role]

    def pick(self, unicode_text: str, ascii_text: str) -> str:
        """Give the ASCII text in ASCII mode."""
        return ascii_text if self.ascii_only else unicode_text


_DARK = Look(
    roles={
        Role.INPUT: "color(140)",
        Role.COMPUTE: "color(67)",
        Role.BACKWARD: "color(74)",
        Role.HIDDEN: "color(72)",
        Role.WAIT: "color(209)",
        Role.TRANSFER: "color(179)",
        Role.COLLECTIVE: "color(137)",
        Role.UPDATE: "color(103)",
        Role.REST: "color(244)",
    },
    text="color(252)",
    dim="color(245)",
    title="bold color(255)",
    number="bold color(255)",
    accent="bold color(209)",
    warn="bold color(179)",
    good="color(114)",
    bar="color(252) on color(236)",
    key="bold color(255) on color(236)",
    marker="bold color(255)",
)

_LIGHT = Look(
    roles={
        Role.INPUT: "color(97)",
        Role.COMPUTE: "color(25)",
        Role.BACKWARD: "color(31)",
        Role.HIDDEN: "color(29)",
        Role.WAIT: "color(166)",
        Role.TRANSFER: "color(136)",
        Role.COLLECTIVE: "color(94)",
        Role.UPDATE: "color(60)",
        Role.REST: "color(102)",
    },
    text="color(236)",
    dim="color(242)",
    title="bold color(232)",
    number="bold color(232)",
    accent="bold color(160)",
    warn="bold color(130)",
    good="color(28)",
    bar="color(236) on color(254)",
    key="bold color(232) on color(254)",
    marker="bold color(232)",
)

_PLAIN = Look(
    roles=dict.fromkeys(Role, "none"),
    text="none",
    dim="none",
    title="bold",
    number="bold",
    accent="bold",
    warn="bold",
    good="none",
    bar="reverse",
    key="bold reverse",
    marker="bold",
)

# Forward and backward are told apart by colour; without it, by the glyph.
_PLAIN_GLYPHS = GLYPHS | {Role.BACKWARD: "▌"}

THEMES = ("dark", "light")


def make_look(theme: str, *, colour: bool = True, ascii_only: bool = False) -> Look:
    """Give the look of a theme (`dark` or `light`), without colours or in ASCII on request."""
    look = {"dark": _DARK, "light": _LIGHT}[theme] if colour else replace(_PLAIN, glyphs=_PLAIN_GLYPHS)
    return replace(look, ascii_only=True, glyphs=ASCII_GLYPHS) if ascii_only else look


def background(theme: str) -> str:
    """Give the colour of the empty screen."""
    return "#121212" if theme == "dark" else "#ffffff"
