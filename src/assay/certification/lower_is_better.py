"""Names of measures that are good when they are low, such as rates of harm and of errors.

A guess would certify the worst agents, so a name like these needs an explicit `direction`.
"""

import re

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")
_STEMS = tuple(
    """
    abus attack breach contradict crash dangerous deceiv decept deviat discriminat diverg duplicat
    error exploit expos fabricat fail fraud hallucinat harm hate illegal inaccura incorrect inject
    insecur insult invalid jailbreak latenc leak malicious mislead misinform misus negativ offens
    outag overrefus perplex plagiar privacyviolat profan racis refus regress reject repetit retri
    risk sexis slow stereotyp timeout toxic truncat undesir unethic unfair unfaithful ungrounded
    unsafe unsupported unwanted violat violen vulnerab wrong
    """.split()
)
_EXACT = frozenset(
    """
    bad bias biased biases brier cer complaint complaints cost costs damage delay delays distance
    distances duration ece empty false fnr fpr latency loss losses mae mape miss missed misses
    missing mse omission omissions penalties penalty pii price prices regret rmse runtime seconds
    severity spam ter time wer
    """.split()
)
_GOOD_BEFORE = frozenset("no non zero without avoid avoids avoiding absence anti on in".split())
_GOOD_AFTER = tuple(
    """
    avoid aware correct detect effectiv efficien explain free handl mitigat prevent recover reduc
    report resilien resist robust safe safety toleran
    """.split()
)


def is_lower_better(name: str) -> bool:
    """Whether low values of a measure with this name are likely to be the good ones."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    return any(
        _is_bad(word) and not (_GOOD_BEFORE & {*words[:place]} or _has_good(words[place + 1 :]))
        for place, word in enumerate(words)
    )


def _is_bad(word: str) -> bool:
    return word in _EXACT or (word.startswith(_STEMS) and not word.startswith("harmless"))


def _has_good(words: list[str]) -> bool:
    return any(word.startswith(_GOOD_AFTER) for word in words)
