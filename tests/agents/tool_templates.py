"""Three small chat templates with tools, each in the manner of a family of models, and tokenizers that have them."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

from tests.agents.toys import tokenizer

HERMES = """
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}You have tools, a line of JSON for each:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
To use one, write
<tool_call>
{"name": its name, "arguments": what it takes}
</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}
{%- if m.content or not loop.first %}
{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML; a result is a turn of the user between two tags of ordinary text."""

LLAMA = """
{%- macro turn(role, text) %}<|start_header_id|>{{ role }}<|end_header_id|>

{{ text }}<|eot_id|>{% endmacro %}
{{- bos_token }}
{%- if messages[0].role == 'system' %}
{{- turn('system', messages[0].content | trim) }}{% set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ turn('ipython', m.content | tojson) }}
{%- elif m.tool_calls %}
{%- set f = m.tool_calls[0].function %}
{{- turn('assistant', '{"name": "' + f.name + '", "parameters": ' + (f.arguments | tojson) + '}') }}
{%- elif tools and loop.first %}
{{- turn('user', 'Answer with a call of one of these, as JSON:\n' + (tools | tojson) + '\n\n' + (m.content | trim)) }}
{%- else %}{{ turn(m.role, m.content | trim) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
"""Tools stand in the first message of the user; a call is bare JSON; a result is a JSON string."""

MISTRAL = """
{{- bos_token }}
{%- set ns = namespace(last=0, system='') %}
{%- for m in messages %}
{%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if loop.index0 == ns.last and tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{{- '[INST] ' + (ns.system if loop.index0 == ns.last else '') + m.content + '[/INST]' }}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('the name of a call has nine characters') }}{% endif %}
{{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif m.tool_calls %}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('the name of a call has nine characters') }}{% endif %}
{%- set f = call.function %}
{{- '[TOOL_CALLS] [' if loop.first else ', ' }}
{{- '{"name": "' + f.name + '", "arguments": ' + (f.arguments | tojson) + ', "id": "' + call.id + '"}' }}
{%- endfor %}]{{ eos_token }}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}
{%- endif %}
{%- endfor %}"""
"""Tools stand before the last message of the user; calls have names, which their results repeat."""

TEMPLATES = {"hermes": HERMES, "llama": LLAMA, "mistral": MISTRAL}
CONTROLS = {
    "hermes": ["<tool_call>", "</tool_call>"],
    "llama": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "mistral": ["</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
}  # fmt: skip
ENDS = {"hermes": "<|im_end|>", "llama": "<|eot_id|>", "mistral": "</s>"}


@cache
def _made(name: str) -> Any:
    made = copy.deepcopy(tokenizer(None))
    plain = name == "hermes"  # as in Qwen's tokenizers: marks of calls are added tokens, and not special ones
    made.add_tokens(CONTROLS[name], special_tokens=not plain)
    made.eos_token = ENDS[name]
    made.chat_template = TEMPLATES[name]
    return made


def tool_tokenizer(name: str) -> Any:
    """The tokenizer of a template; change it as you like."""
    return copy.deepcopy(_made(name))


def call(name: str, command: str, number: int = 0) -> str:
    """A reply that calls `bash`, as a model of the family writes it."""
    arguments = json.dumps({"command": command}, ensure_ascii=False)
    return {
        "hermes": f'<tool_call>\n{{"name": "bash", "arguments": {arguments}}}\n</tool_call>',
        "llama": f'{{"name": "bash", "parameters": {arguments}}}',
        "mistral": f'[TOOL_CALLS] [{{"name": "bash", "arguments": {arguments}, "id": "{called(number)}"}}]',
    }[name]


def called(number: int) -> str:
    """The name that the model gives its call."""
    return f"abcdefgh{number}"
