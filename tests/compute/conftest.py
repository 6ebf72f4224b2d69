"""The stand-in accelerator, for all tests here."""

from tests.support.stand_in import overlapping, stand_in

__all__ = ["overlapping", "stand_in"]
