"""`iblurry methods`: what there is to run, and what each is made of."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print every field of every method as JSON.")
def methods(as_json: bool) -> None:
    """List the methods, what they are made of and where they come from. Any name also works with -released."""
    import json

    from iblurry.methods import METHODS

    if as_json:
        click.echo(json.dumps({name: recipe().to_json() for name, recipe in METHODS.items()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("method", "admission", "rehearsal", "schedule", "idea", "paper", show_lines=True)
    for name, recipe in METHODS.items():
        made = recipe()
        parts = [repr(part).replace("()", "") for part in (made.admission, made.rehearsal, made.schedule)]
        table.add_row(name, *(part.split("(")[0] for part in parts), recipe.idea, recipe.paper)
    Console().print(table)
