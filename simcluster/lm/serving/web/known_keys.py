"""Keys of requests that other servers understand: those without effect here, and those refused."""

from __future__ import annotations

from typing import Any, Final

IGNORED: Final = frozenset({
    # OpenAI
    "metadata", "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
    "safety_identifier", "service_tier", "store", "user", "verbosity",
    # vLLM
    "add_special_tokens", "chat_template_kwargs", "include_reasoning", "kv_transfer_params", "length_penalty",
    "mm_processor_kwargs", "priority", "request_id", "skip_special_tokens", "spaces_between_special_tokens",
    "vllm_xargs",
    # llama.cpp and Ollama
    "cache_prompt", "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers",
    "dynatemp_exponent", "dynatemp_range", "id_slot", "keep_alive", "min_keep", "mirostat", "mirostat_eta",
    "mirostat_tau", "n_cache_reuse", "n_ctx", "n_discard", "n_indent", "n_keep", "num_batch", "num_ctx", "num_gpu",
    "num_thread", "penalize_nl", "reasoning_format", "repeat_last_n", "return_progress", "samplers", "slot_id",
    "t_max_predict_ms", "tfs_z", "thinking_budget_tokens", "timings_per_token", "typical_p", "xtc_probability",
    "xtc_threshold",
})  # fmt: skip
"""Keys without effect, which the reply's header `x-simcluster-ignored` lists.

Either they change no token, or they choose another way of sampling.
"""

REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    # OpenAI
    "audio": (),
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "suffix": ("",),
    "web_search_options": (),
    # vLLM
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "cache_salt": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_stop_str_in_output": (False,),
    "logits_processors": ([],),
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "structural_tag": (),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    # llama.cpp and Ollama
    "format": ("",),
    "grammar": ("",),
    "image_data": ([],),
    "input_prefix": ("",),
    "input_suffix": ("",),
    "json_schema": (),
    "lora": ([],),
    "n_probs": (0,),
    "options": ({},),
    "post_sampling_probs": (False,),
    "response_fields": ([],),
    "return_tokens": (False,),
}
"""Unsupported key -> the values that mean the same as no key.

Other values are refused: an answer without their effect would not be what the client asked for.
"""


def is_neutral(key: str, value: object) -> bool:
    """Return whether *value* of the refused *key* means the same as no key."""
    # In Python, 1 == True, but true in place of a number is an error of the client.
    same = REFUSED[key]
    return value is None or any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in same)
