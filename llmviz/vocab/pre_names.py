"""The table of pre-tokenizers by name. ↔ src/llama-vocab.cpp (llm_tokenizer_bpe; the names in load)

The expressions come from the models' own ``tokenizer.json``; many differ in one place only, so
they are built from shared parts. Adding a name is one line here, plus its rules where they are
new.
"""

from __future__ import annotations

from llmviz.errors import UnsupportedError
from llmviz.vocab.pre import (
    HAN,
    HAN_BLANK,
    LOWER,
    UPPER,
    DigitGroups,
    L,
    M,
    N,
    P,
    PreTokenizer,
    Regex,
    Rule,
    S,
)

__all__ = ["get_pre", "pre_names"]

# --- parts --------------------------------------------------------------------------------------

CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
ONE_DIGIT, THREE_DIGITS, DIGITS = f"[{N}]", f"[{N}]{{1,3}}", f"[{N}]+"
SPACES = r"\s+(?!\S)|\s+"
LINES = r"\s*[\r\n]+|" + SPACES
BEFORE_WORD = rf"[^\r\n{L}{N}]?"
SIGNS = rf" ?[^\s{L}{N}]+[\r\n]*"
SIGNS_SLASH = rf" ?[^\s{L}{N}]+[\r\n/]*"
ASCII_SIGNS = r"!-/:-@\[-`{-~"

# --- rules that begin a family ------------------------------------------------------------------

GPT2 = Regex(rf"'(?:[stmd]|re|ve|ll)| ?[{L}]+| ?[{N}]+| ?[^\s{L}{N}]+|" + SPACES)


def _llama3(number: str) -> Regex:
    """Contraction, word and the character before it, number, signs, lines, spaces (as cl100k)."""
    return Regex(rf"{CONTRACTION}|{BEFORE_WORD}[{L}]+|{number}|{SIGNS}|{LINES}")


def _cased(number: str, mark: str = "", ending: str = "") -> Regex:
    """A word is upper case, then lower case, then perhaps a contraction (o200k's form)."""
    up, low = UPPER + mark, LOWER + mark
    return Regex(
        f"{BEFORE_WORD}[{up}]*[{low}]+{ending}|{BEFORE_WORD}[{up}]+[{low}]*{ending}"
        f"|{number}|{SIGNS_SLASH}|{LINES}"
    )


def _caseless(number: str) -> Regex:
    """o200k's form spelt with categories of case, which collapsed text does not tell apart."""
    return Regex(
        rf"{BEFORE_WORD}[{L}{M}]+(?:{CONTRACTION})?|{number}|{SIGNS_SLASH}|{LINES}",
    )


LLAMA3, QWEN2 = _llama3(THREE_DIGITS), _llama3(ONE_DIGIT)
EACH_DIGIT, BY_THREES, NUMBERS = Regex(ONE_DIGIT), Regex(THREE_DIGITS), Regex(DIGITS)
ASCII_THREES = Regex("[0-9][0-9][0-9]")
EACH_NEWLINE = Regex(r"[\r\n]")
NEWLINE_RUNS = Regex(r"[^\n]+|\n+")
CJK = Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "blanked")
CJK_HANGUL = Regex("[\u0800-\u9fa5\uac00-\ud7ff]+", "blanked")
UP_TO_STOP = Regex(" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+", "blanked")
WORD_AFTER_SIGN = rf"[{ASCII_SIGNS}][A-Za-z]+|[^\r\n{L}{P}{S}]?[{L}{M}]+"
DEEPSEEK3 = Regex(rf"{WORD_AFTER_SIGN}| ?[{P}{S}]+[\r\n]*|{LINES}")

# Letters of scripts that have case, as DeepSeek LLM's expression lists them.
CASED_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
# Scripts that AFMoE cuts out before the rest; the third range begins at U+8C48 in llama.cpp too.
ASIAN_SCRIPTS = (
    "\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff"
)

# --- names --------------------------------------------------------------------------------------

_TABLE: dict[str, PreTokenizer] = {}


def _register(names: str, *rules: Rule, **settings: bool) -> None:
    """Enter each of the space-separated `names` with the same rules and settings."""
    for name in names.split():
        _TABLE[name] = PreTokenizer(name, rules, **settings)


_register("default", Regex(rf"[{P}$+<=>\^~|]+"), GPT2, NUMBERS, ASCII_THREES)
_register("falcon", Regex(rf"[{P}$+<=>\^~|`]+"), GPT2, ASCII_THREES)

_register(
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert"
    " mpt olmo jais exaone4",
    GPT2,
)
_register("jina-v1-en jina-v2-code roberta-bpe", GPT2, add_sep=True)
_register("trillion granite-docling", GPT2, clean_spaces=False)

_register("starcoder refact codeshell exaone minerva-7b mellum2", EACH_DIGIT, GPT2)
_register("smollm command-r", EACH_DIGIT, GPT2, clean_spaces=False)

_register(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    LLAMA3,
    ignore_merges=True,
    add_bos=True,
)
_register("dbrx smaug-bpe", LLAMA3)
_register("chatglm-bpe", LLAMA3, has_bos=False)
_register("glm4 glm5", LLAMA3, has_bos=False, ignore_merges=True)
_register("minicpm5", BY_THREES, _llama3(DIGITS), ignore_merges=True)
_register(
    "jais-2",
    Regex(
        rf"{CONTRACTION}|{BEFORE_WORD}[{L}]+|{THREE_DIGITS}|{SIGNS}|\s*[\r\n]+|"
        + "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
        + r"\s{1,2}(?!\S)|\s"
    ),
)

_register(
    "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2", QWEN2, clean_spaces=False
)
_register("stablelm2 megrez", QWEN2)
_register("laguna", NEWLINE_RUNS, QWEN2, clean_spaces=False)
_register(
    "qwen35",
    Regex(rf"{CONTRACTION}|{BEFORE_WORD}[{L}{M}]+|{ONE_DIGIT}| ?[^\s{L}{M}{N}]+[\r\n]*|{LINES}"),
    clean_spaces=False,
)
_register(
    "ufakzeka", Regex(rf"{BEFORE_WORD}[{L}]+|{ONE_DIGIT}|{SIGNS}|{LINES}"), clean_spaces=False
)
_register(
    "seed-coder",
    Regex(rf"{CONTRACTION}|{BEFORE_WORD}[{L}]+|{ONE_DIGIT}| ?[^\s{L}{N}\r\n]+|{LINES}"),
    clean_spaces=False,
)
_register(
    "bailingmoe bailingmoe2 llada-moe",
    Regex(rf"{CONTRACTION}|{BEFORE_WORD}[{L}]+|{ONE_DIGIT}|{SIGNS}|\s*[\r\n]|{SPACES}"),
    clean_spaces=False,
)
_register(
    "exaone-moe",
    Regex(
        rf"{CONTRACTION}|{BEFORE_WORD}(?:[{L}][{M}]*(?: [{L}][{M}]*)*)+|{ONE_DIGIT}"
        rf"| ?[^\s{L}{N}]+[\r\n/]?|\s*[\r\n]|{SPACES}"
    ),
)

_register("tekken", _cased(ONE_DIGIT), clean_spaces=False, ignore_merges=True, add_bos=True)
_register(
    "gpt-4o llama4 kanana2 talkie minimax-m2",
    _cased(THREE_DIGITS, ending=f"(?:{CONTRACTION})?"),
    clean_spaces=False,
)
_register(
    "granite-embed-multi-97m",
    _cased(THREE_DIGITS, mark=M, ending=f"(?:{CONTRACTION})?"),
    clean_spaces=False,
    ignore_merges=True,
)
_register("tiny_aya cohere2moe", DigitGroups(), _caseless(THREE_DIGITS), clean_spaces=False)
_register(
    "youtu",
    Regex(
        "[\uac00-\ud7a3\u3131-\u318e]+"
        "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        "blanked",
    ),
    _caseless(ONE_DIGIT),
    clean_spaces=False,
    ignore_merges=True,
)
_register(
    "kimi-k2",
    Regex(
        rf"[{HAN}{HAN_BLANK}]+|{BEFORE_WORD}[{L}]+(?:{CONTRACTION})?|{THREE_DIGITS}"
        rf"| ?[^\s{L}{N}{HAN}]+[\r\n]*|{LINES}",
        "han",
    ),
    clean_spaces=False,
)

_register(
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4", BY_THREES, CJK, DEEPSEEK3, clean_spaces=False
)
_register(
    "spark2_5",
    BY_THREES,
    CJK,
    Regex(rf"{WORD_AFTER_SIGN}| ?[{P}{S}]+|[\r\n]|{SPACES}"),
    EACH_DIGIT,
    clean_spaces=False,
)
_register(
    "afmoe", DigitGroups(), Regex(f"[{ASIAN_SCRIPTS}]+", "blanked"), DEEPSEEK3, clean_spaces=False
)
_register(
    "deepseek-coder",
    EACH_NEWLINE,
    Regex(rf"\s?[{L}]+"),
    Regex(rf"\s?[{P}]+"),
    CJK_HANGUL,
    EACH_DIGIT,
    clean_spaces=False,
)
_register(
    "deepseek-llm",
    EACH_NEWLINE,
    Regex(rf"\s?[{CASED_LETTERS}]+", "blanked"),
    Regex("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+", "blanked"),
    Regex(r"\s+\Z"),
    CJK_HANGUL,
    NUMBERS,
    clean_spaces=False,
)

_register("poro-chat", UP_TO_STOP, clean_spaces=False)
_register("bloom gpt3-finnish", UP_TO_STOP)
_register("viking", UP_TO_STOP, EACH_DIGIT, clean_spaces=False)
_register("superbpe", NUMBERS, Regex(r"(?=(?:\d{3})+(?!\d))"), clean_spaces=False)
_register(
    "chameleon",
    Regex("<sentinel:[0-9]+>"),
    Regex("IMGIMG[A-I]{1,4}Z"),
    Regex(r"[\t\n]|    |  "),
    EACH_DIGIT,
    Regex(f"[{P}{ASCII_SIGNS}]"),
    GPT2,
    clean_spaces=False,
    add_bos=True,
)

# Vocabularies that were SentencePiece's: spaces become "▁" and a whole line is one word.
_register(
    "gemma4 granite-embed-multi-311m",
    NEWLINE_RUNS,
    byte_encode=False,
    escape_whitespaces=True,
    gemma4=True,
)
_register(
    "sarvam-moe", NEWLINE_RUNS, byte_encode=False, escape_whitespaces=True, clean_spaces=False
)
_register("whitespace", Regex(r"\S+"), byte_encode=False)


def pre_names() -> tuple[str, ...]:
    """Names that ``tokenizer.ggml.pre`` may have."""
    return tuple(sorted(_TABLE))


def get_pre(name: str) -> PreTokenizer:
    """The pre-tokenizer called `name`.

    Raises
    ------
    UnsupportedError
        No such name; the message lists those there are.
    """
    if name not in _TABLE:
        raise UnsupportedError(
            "pre-tokenizer",
            name,
            supported=pre_names(),
            hint="Without its rule the words would be cut in the wrong places; "
            "the key is tokenizer.ggml.pre",
        )
    return _TABLE[name]
