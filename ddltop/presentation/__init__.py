"""What every picture of a run shares: the parts of a step, their glyphs, bars, and the words of a verdict."""
