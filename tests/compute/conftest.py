"""The stand-in accelerator, for all tests here."""

from tests.support.stand_in import stand_in

__all__ = ["stand_in"]
