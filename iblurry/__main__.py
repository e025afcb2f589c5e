"""`python -m iblurry` is `iblurry`."""

from iblurry.cli.main import main

if __name__ == "__main__":
    main()
