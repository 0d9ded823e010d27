"""Foreign shapes: each format in one file, both directions, with a report of what is lost."""

from .anthropic import AnthropicChat, from_anthropic, to_anthropic
from .conversion import Converted, Lost
from .gemini import GeminiChat, from_gemini, to_gemini
from .huggingface import from_huggingface, to_huggingface
from .openai_chat import from_openai_chat, to_openai_chat

__all__ = [
    "AnthropicChat",
    "Converted",
    "GeminiChat",
    "Lost",
    "from_anthropic",
    "from_gemini",
    "from_huggingface",
    "from_openai_chat",
    "to_anthropic",
    "to_gemini",
    "to_huggingface",
    "to_openai_chat",
]
