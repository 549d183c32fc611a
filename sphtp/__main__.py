"""The command ``sphtp``: a list of verbs, each an entry point of the group ``sphtp.commands``.

A verb's code is imported when it is asked for and not before, so the library knows no application,
anybody's package can add a verb, and one that cannot be imported does not break the others.
"""

from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "sphtp.commands"


class Verbs(click.Group):
    """A group whose commands are looked up among the installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs; imports none."""
        return sorted({*super().list_commands(ctx), *_found()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one verb; one that cannot be imported says why when it is called."""
        found = _found().get(cmd_name)
        if found is None:
            return super().get_command(ctx, cmd_name)
        try:
            command = found.load()
        except Exception as error:  # whatever a plugin may raise
            return _broken(found, f"{type(error).__name__}: {error}")
        if not isinstance(command, click.Command):
            return _broken(found, "it is not a click command")
        return command


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="sphtp", prog_name="sphtp", message="%(prog)s %(version)s")
def main() -> None:
    """Peer-to-peer messaging for distributed simulations.

    Every verb has its own --help. Exit code 2 means a wrong call.
    """


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _broken(point: EntryPoint, reason: str) -> click.Command:
    def complain() -> None:
        raise click.ClickException(f"{point.name} ({point.value}) cannot be loaded: {reason}")

    return click.Command(
        point.name,
        callback=complain,
        help=f"Cannot be loaded: {reason}",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


if __name__ == "__main__":
    main(prog_name="sphtp")
