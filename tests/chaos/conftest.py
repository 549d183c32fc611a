from tests.apps.conftest import gas_file

__all__ = ["gas_file"]
