"""Programs for those who work on iblurry; none of them is installed."""
