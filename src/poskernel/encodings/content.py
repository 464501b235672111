"""CoPE: positions that are counted by content, so that no kernel of positions exists before a text is read."""

from dataclasses import dataclass

from poskernel.encodings.encoding import Encoding
from poskernel.encodings.family import KernelFamily
from poskernel.errors import InputError


@dataclass(frozen=True)
class Cope(Encoding):
    """CoPE (arXiv 2405.18719): the offset is a sum of gates sigma(q k) over the tokens between.

    It says why it has no kernel instead of giving a number, and has no model side here.
    """

    name = "cope"
    no_kernel = (
        "CoPE counts positions by gates that depend on the tokens, so no kernel of positions exists before a text is "
        "read"
    )

    def family(self, train_length: int, length: int) -> KernelFamily:
        """Undefined without content: always an InputError."""
        raise InputError(f"encoding '{self.name}' has no kernel family: {self.no_kernel}.")
