"""A web server beside servers, clients and nodes: metrics, liveness, readiness, and a page.

It needs the extra: ``pip install 'sphtp[metrics]'``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.shell.web import Web as Web
    from sphtp.shell.web import open_web as open_web
else:
    from sphtp._lazy import lazy_names

    _find, __dir__, __all__ = lazy_names(__name__)

    def __getattr__(name: str) -> object:
        try:
            return _find(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            remedy = f"sphtp.web needs {missing}: pip install 'sphtp[metrics]' brings it."
            raise ModuleNotFoundError(remedy, name=missing) from error
