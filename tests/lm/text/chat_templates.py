"""Chat templates in the manner of well-known models, each with the tokenizer that it is for."""

from __future__ import annotations

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA_3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "26 Jul 2024" %}
{%- endif %}
{%- if messages[0].role == "system" %}
    {%- set given = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set given = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + date_string + "\\n\\n" + given + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.content is string %}
        {{- "<|start_header_id|>" + message.role + "<|end_header_id|>\\n\\n" + message.content | trim + "<|eot_id|>" }}
    {%- else %}
        {{- raise_exception("Only texts") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start_header_id|>assistant<|end_header_id|>\\n\\n" }}{%- endif %}"""

MISTRAL = """{%- set ns = namespace(turns=0) -%}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}{%- set rest = messages -%}
{%- endif -%}
{{ bos_token }}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (ns.turns % 2 == 0) -%}
        {{ raise_exception('Roles must alternate: user, assistant, user, ...') }}
    {%- endif -%}
    {%- set ns.turns = ns.turns + 1 -%}
    {%- if message['role'] == 'user' -%}
        {{ ' [INST] ' + (first if loop.first else '') + message['content'] + ' [/INST]' }}
    {%- else -%}
        {{ ' ' + message['content'].strip() + eos_token }}
    {%- endif -%}
{%- endfor -%}"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}
{% endif %}{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

PHI = """{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% else %}{% generation %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endgeneration %}{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

THINKING = """{%- for message in messages %}
    {%- if not message.content %}{%- continue %}{%- endif %}
    {%- set content = message.content %}
    {%- if message.role == "assistant" and "</think>" in content %}
        {%- set thought = (content.split("</think>") | first).rstrip("\\n").split("<think>") | last %}
        {%- set content = content.split("</think>")[-1].lstrip("\\n") %}
        {%- if loop.index0 > messages | length - 3 and thought | length > 3 %}
            {{- "<|im_start|>" + message.role + "\\n<think>\\n" + thought.strip("\\n") + "\\n</think>\\n\\n" }}
            {{- content }}
        {%- else %}
            {{- "<|im_start|>" ~ message.role ~ "\\n" ~ content }}
        {%- endif %}
    {%- elif content.startswith("<tool_response>") or content[:1] == "{" or content == "none" %}
        {{- "<|im_start|>tool\\n" + content | tojson }}
    {%- else %}
        {{- "<|im_start|>" + message["role"] + "\\n" + content.upper()[:40] + content[40:] }}
    {%- endif %}
    {{- "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n" }}{%- endif %}"""

TEMPLATES = {
    "chatml": (CHATML, "bytes"),
    "llama 3": (LLAMA_3, "bytes"),
    "mistral": (MISTRAL, "spaces first"),
    "llama 2": (MISTRAL, "spaces always"),
    "gemma": (GEMMA, "spaces never"),
    "phi": (PHI, "bytes"),
    "zephyr": (ZEPHYR, "spaces always"),
    "thinking": (THINKING, "bytes"),
}
