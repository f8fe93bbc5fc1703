"""Chat templates: what they write, what they may use, and what they cannot do."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from llmviz.errors import VocabError
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab
from llmviz.vocab.chat import ChatTemplate

from .files import CONTROL, STR, spm_keys, vocab

HELLO = [{"role": "user", "content": "Hello"}]


def render(text: str, messages=HELLO, **variables) -> str:
    return ChatTemplate(text).render(messages, **variables)


def test_smollm2(smollm2_path):
    with open_gguf(smollm2_path) as gguf:
        v = Vocab.from_gguf(gguf)
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    prompt = (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert v.apply_chat_template(HELLO) == prompt
    assert v.apply_chat_template(HELLO, False) == prompt.removesuffix("<|im_start|>assistant\n")
    ids = v.tokenize(prompt, parse_special=True)
    assert ids.count(1) == 3 and ids.count(2) == 2
    assert v.detokenize(ids, unparse_special=True) == prompt


def test_variables(tmp_path):
    text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}|{{ add_generation_prompt }}"
    keys = spm_keys([], [("<x>", CONTROL)], **{"tokenizer.chat_template": (STR, text)})
    v = vocab(tmp_path, keys)
    assert v.chat_template == text
    assert v.apply_chat_template(HELLO) == "<s>Hello</s>|True"
    assert v.apply_chat_template(HELLO, False, bos_token="!") == "!Hello</s>|False"
    text = "{{ tools }}{{ documents }}{{ enable_thinking is defined }}"
    assert v.apply_chat_template(HELLO, template=text) == "NoneNoneFalse"
    assert v.apply_chat_template(HELLO, template=text, enable_thinking=False) == "NoneNoneTrue"


def test_named_templates(tmp_path):
    keys = spm_keys(**{"tokenizer.chat_template.tool_use": (STR, "tools!")})
    v = vocab(tmp_path, keys)
    assert v.chat_template is None
    assert v.apply_chat_template(HELLO, template="tool_use") == "tools!"
    with pytest.raises(VocabError, match=r"no chat template.*plain text"):
        v.apply_chat_template(HELLO)


def test_white_space_of_blocks():
    text = "{% for m in messages %}\n    {%- if true %}\n  a\n    {% endif %}\n{% endfor %}\n"
    assert render(text) == "  a\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% for i in range(4) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{{ {'b': '<é>', 'a': [1, none]} | tojson }}", '{"b": "<é>", "a": [1, null]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% generation %}x{{ 1 + 1 }}{% endgeneration %}", "x2"),
        ("{{ 'ab' ~ 1 ~ none }}", "ab1None"),
        ("{{ '%s-%d' % ('a', 3) }}{{ '{:>3}'.format('b') }}", "a-3  b"),
        ("{{ 'a' * 3 + 'b' }}{{ 2 ** 3 * 4 - 7 % 4 }}", "aaab29"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) }}{{ f('a') }}", "[1][a]"),
        ("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
         "{% endfor %}{{ ns.n }}{{ loop is defined }}", "3False"),
        ("{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{% else %}-{% endfor %}", "0True"),
        ("{{ messages | map(attribute='role') | join(', ') }}{{ '-'.join(['a', 'b']) }}", "usera-b"),  # noqa: E501
        ("{{ {'a': 'x', 'b': 'y'}.values() | join('') }}{{ 'aba' | replace('a', 'cd') }}", "xycdbcd"),  # noqa: E501
        ("{% for m in messages if m.role == 'x' %}{{ m }}{% else %}none{% endfor %}", "none"),
        ("{{ messages[0]['content'] | trim | upper | length }}", "5"),
        ("{{ 'a,b'.split(',')[-1].strip() }}{{ missing }}", "b"),
    ],
)  # fmt: skip
def test_what_templates_use(text, expected):
    assert render(text) == expected


def test_today():
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_messages_are_not_changed():
    messages = [{"role": "user", "content": ["a"]}]
    with pytest.raises(VocabError, match="SecurityError"):
        render("{{ messages[0].content.append('b') }}", messages)
    assert messages == [{"role": "user", "content": ["a"]}]


def test_a_template_may_refuse():
    text = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(VocabError, match="gave up: roles must alternate"):
        render(text)


@pytest.mark.parametrize("messages", ["Hello", {"role": "user"}, [["user", "hi"]], ["hi"], b"x"])
def test_messages_must_be_dictionaries(messages):
    with pytest.raises(VocabError, match="list of dictionaries"):
        render("", messages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{% if %}", r"not valid Jinja: .*\(line 2\)"),
        ("{% for x in y %}", "not valid Jinja"),
        ("{{ 'a' | no_such_filter }}", "not valid Jinja: No filter named"),
        ("{% include 'x' %}", "failed: TypeError: no loader"),
    ],
)
def test_invalid_templates(text, message):
    with pytest.raises(VocabError, match=message):
        render(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ ''.__class__ }}{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.__class__.__init__.__globals__ }}", "SecurityError"),
        ("{{ raise_exception.__globals__ }}{{ raise_exception.__globals__.x }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ missing.attribute }}", "UndefinedError"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ lipsum(n=10**6) }}", "UndefinedError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ],
)
def test_failing_templates(text, message):
    with pytest.raises(VocabError, match=message):
        render(text)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}%s{% endfor %}{% endfor %}"
RUNAWAY = {
    "range": "{{ range(10**9) | list }}",
    "empty_loops": LOOP.replace("%s", ""),
    "output": LOOP.replace("%s", "x" * 1000),
    "string": "{% for a in 'x' * 99999 %}{% for b in 'x' * 99999 %}{% endfor %}{% endfor %}",
    "times": "{{ 'x' * 10**10 }}",
    "times_left": "{{ 10**10 * 'x' }}",
    "list_times": "{{ ([1] * 10**9) | length }}",
    "power": "{{ 10 ** 10000000 }}",
    "product": "{% set ns = namespace(n=10**100) %}{% for i in range(99) %}"
    "{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "plus": "{% set ns = namespace(s='x') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "tilde": "{% set ns = namespace(s='x') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "replace": "{% set ns = namespace(s='xx') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s | replace('x', ns.s) %}{% endfor %}",
    "join": "{% set ns = namespace(s='xx') %}{% for i in range(99) %}"
    "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    "join_method": "{% set s = 'x' * 9999999 %}{{ ','.join([s, s, s]) }}",
    "join_separator": "{% set s = 'x' * 9999999 %}{{ s.join(['a', 'b', 'c', 'd']) }}",
    "replace_method": "{% set s = 'x' * 99999 %}{{ s.replace('x', s) }}",
    "translate": "{% set s = 'x' * 99999 %}{{ s.translate({120: s}) }}",
    "wordwrap": "{% set s = 'x ' * 99999 %}{{ s | wordwrap(1, wrapstring=s) }}",
    "center": "{{ 'x' | center(10**10) }}",
    "ljust": "{{ 'x'.ljust(10**10) }}",
    "percent": "{{ '%9999999999d' % 1 }}",
    "format": "{{ '{:>9999999999}'.format('x') }}",
    "format_filter": "{{ '%9999999999d' | format(1) }}",
    "format_argument": "{{ '{:{w}}'.format('x', w=10**10) }}",
    "format_map": "{{ '{x:{w}}'.format_map({'x': 1, 'w': 10**10}) }}",
    "macros": "{% macro a() %}{% endmacro %}{% macro b() %}" + "{{ a() }}" * 2000 + "{% endmacro %}"
    "{% macro c() %}" + "{{ b() }}" * 2000 + "{% endmacro %}{{ c() }}",
    "indent": "{{ {'a': 1} | tojson(indent=10**10) }}",
}


@pytest.mark.parametrize("case", RUNAWAY)
def test_runaway_templates_are_stopped(case):
    with pytest.raises(VocabError, match=r"gave up|failed: (OverflowError|RecursionError)"):
        render(RUNAWAY[case])


def test_a_long_chat_is_no_runaway():
    text = "{% for m in messages %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}"
    messages = [{"role": "user", "content": "abcdefghij" * 100}] * 100
    assert len(render(text, messages)) == 100_000
    template = ChatTemplate(text)
    for _ in range(12):  # the counter begins anew with every rendering
        template.render(messages)


def test_tools_are_json(tmp_path):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": "é"}}}]
    out = render("{% for t in tools %}{{ t | tojson }}{% endfor %}", tools=tools)
    assert json.loads(out) == tools[0]
    assert "é" in out
