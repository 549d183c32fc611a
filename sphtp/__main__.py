"""The command ``sphtp``: a list of verbs, each an entry point of the group ``sphtp.commands``.

A verb's code is imported when the verb is called, or when the help or the completion of a shell
lists it. So the library depends on no application, any package can add a verb, and a verb that
cannot be imported does not break the others.

Extras install the packages that the library can do without. If a command misses such a package, its
error names the extra. The error of a verb that no wheel contains shows how to get a checkout.
"""

import sys
from importlib.metadata import EntryPoint, entry_points

GROUP = "sphtp.commands"

EXTRAS = {
    **dict.fromkeys(("click", "pydantic", "rich", "structlog"), "cli"),
    **dict.fromkeys(("hypercorn", "prometheus_client", "starlette"), "metrics"),
    "distributed": "dask",
    "h11": "etcd",
    "aioice": "nat",
    "textual": "top",
    **dict.fromkeys(("mcap", "zstandard"), "record"),
    "numpy": "sim",
    "matplotlib": "plot",
}
"""The extra that installs each module."""

CHECKOUT = "sphtp_benchmarks"
"""The package that only a checkout has."""


def how_to_get(program: str, error: ModuleNotFoundError) -> str | None:
    """Return the sentence that names the missing package of a command, and how to install it.

    Return None if the missing module is neither in an extra nor in a checkout.
    """
    if error.name == CHECKOUT:
        return (
            f"{program} comes with the source and not with the installed package: get a checkout "
            f"of the project, and run `make run` and then `.venv/bin/{program}` there."
        )
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    return extra and f"{program} needs {module}: pip install 'sphtp[{extra}]' brings it."


try:
    import click
except ModuleNotFoundError as missing:
    print(how_to_get("sphtp", missing), file=sys.stderr)
    sys.exit(2)


class Verbs(click.Group):
    """A group whose commands are looked up among the installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs, without importing the verbs."""
        return sorted({*super().list_commands(ctx), *_found(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb and return its command; None for an unknown verb.

        If the import fails, return a command that reports the cause when it is called.
        """
        found = _found(ctx).get(cmd_name)
        if found is None:
            return super().get_command(ctx, cmd_name)
        try:
            command = found.load()
        except Exception as error:  # whatever a plugin may raise
            if isinstance(error, ModuleNotFoundError):
                sentence = how_to_get(f"sphtp {cmd_name}", error)
                if sentence is not None:
                    return _without(found, sentence, sentence, exit_code=2)
            return _broken(found, f"{type(error).__name__}: {error}")
        if not isinstance(command, click.Command):
            return _broken(found, "it is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of the verb, its command, and its arguments.

        Raises ``NoSuchCommand``, which suggests similar verbs, for an unknown verb.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # Click by itself suggests only commands that it has imported.
            similar = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(args[0], None, similar, ctx) from error


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="sphtp", prog_name="sphtp", message="%(prog)s %(version)s")
def main() -> None:
    """Peer-to-peer messaging for distributed simulations.

    Every verb has its own --help. Exit code 2 means wrong arguments, or a package that is not
    installed.
    """


def _found(ctx: click.Context) -> dict[str, EntryPoint]:
    """Return the verbs by name. They are looked up once per command line: `sphtp --help` asks for
    each of them, which reads the metadata of all installed packages."""
    found: dict[str, EntryPoint] = ctx.meta.get(GROUP, {})
    if not found:
        found = {point.name: point for point in entry_points(group=GROUP)}
        ctx.meta[GROUP] = found
    return found


def _broken(point: EntryPoint, reason: str) -> click.Command:
    complaint = f"{point.name} ({point.value}) cannot be loaded: {reason}"
    return _without(point, f"Cannot be loaded: {reason}", complaint, exit_code=1)


def _without(point: EntryPoint, text: str, complaint: str, *, exit_code: int) -> click.Command:
    """Return a stand-in for a verb: ``text`` is its help, and any call prints ``complaint``."""

    def complain() -> None:
        click.echo(f"Error: {complaint}", err=True)
        sys.exit(exit_code)

    return click.Command(
        point.name,
        callback=complain,
        help=text,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


if __name__ == "__main__":
    main(prog_name="sphtp")
