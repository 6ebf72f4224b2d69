"""All claims of all notebooks."""

from tests.notebooks import cluster_answers, inference_answers, training_answers  # noqa: F401  they fill CLAIMS
from tests.notebooks.answers import CLAIMS, check

__all__ = ["CLAIMS", "check"]
