"""Names of measures whose low values are good, such as rates of harm and of errors.

A wrong guess would certify the worst agents, so such a name needs an explicit `direction`.
"""

import re
from itertools import pairwise

_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")
_BAD_STEMS = tuple(
    """
    abandon abstain abstention abus aggress anomal antisemit attack bigot breach bully cheat
    confabulat contradict crash cruel csam danger deceiv decept defect deviat discriminat
    dishonest disinform dispar distort diverg drift duplicat entrop error escalat exploit expos
    extremis fabricat fail fallback fault flak fraud gibberish hallucinat harass harm hate
    hostil illegal impolite inaccura incoheren incomplet inconsisten incorrect infring inject
    insecur insult interrupt invalid irrelevan jailbreak latenc leak malicious manipulat
    misinform mislead misogyn mistak misus negativ nondetermin nonsens nsfw obscen offens outag
    overconfiden overrefus perplex plagiar porn prejudic privacyviolat profan racis redundan
    refus regress reject repetit retri risk rude sexis slow slur stereotyp swear sycophan
    terroris threat timeout toxic truncat unanswer undesir unethic unfair unfaithful ungrounded
    unhelpful unresolv unsafe unsupported untruth unwanted violat violen vulgar vulnerab wrong
    """.split()
)
_BAD_WORDS = frozenset(
    """
    asr bad bias biased biases brier bug bugs cer complaint complaints cost costs curses cursing
    damage delay delays der distance distances dropped duration ece eer empty false fnr fpr gore
    latency levenshtein lie lies loss losses mae mape mer miss missed misses missing mse nll
    noise offtopic omission omissions penalties penalty pii price prices regret rmse runtime
    seconds severity sexual spam ter time tokens ttft verbosity wer wil
    """.split()
)
_GOOD_BEFORE = frozenset("no non zero without avoid avoids avoiding absence anti".split())
_GOOD_AFTER = tuple(
    """
    avoid aware correct detect effectiv efficien explain fix free handl mitigat prevent recover
    reduc report resilien resist robust safe safety toleran
    """.split()
)
# `errors_detected` may count the agent's errors or those that it found.
_AMBIGUOUS_WORDS = frozenset({"detected", "reported"})


def is_lower_better(name: str) -> bool:
    """Whether low values of a measure with this name are likely to be the good ones."""
    words = [word.casefold() for word in _NAME_WORDS.findall(name)]
    if ("off", "topic") in pairwise(words):
        return True
    for position, word in enumerate(words):
        before, after = words[:position], words[position + 1 :]
        # Words around a bad one can make a good measure of it: `no_errors`, `error_recovery`.
        on_time = word == "time" and before[-1:] in (["on"], ["in"])
        negated = on_time or not _GOOD_BEFORE.isdisjoint(before)
        mitigated = any(w.startswith(_GOOD_AFTER) and w not in _AMBIGUOUS_WORDS for w in after)
        has_bad_stem = word.startswith(_BAD_STEMS) and not word.startswith("harmless")
        if (word in _BAD_WORDS or has_bad_stem) and not negated and not mitigated:
            return True
    return False
