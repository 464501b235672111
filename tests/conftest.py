"""Shape annotations are checked wherever the suite calls the package."""

from jaxtyping import install_import_hook

install_import_hook("poskernel", "beartype.beartype")
