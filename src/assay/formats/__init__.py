"""Foreign formats of conversations and results: one file per format, both directions."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "AgentOutput",
    "AnthropicChat",
    "Converted",
    "Dropped",
    "GeminiChat",
    "attach_result",
    "attach_trajectory_result",
    "convert_agent_output",
    "eval_record_schema",
    "from_anthropic",
    "from_atif",
    "from_eval_record",
    "from_fireworks_rft",
    "from_gemini",
    "from_huggingface",
    "from_openai_chat",
    "from_openai_finetuning",
    "from_openenv_trace",
    "from_sharegpt",
    "from_trl",
    "from_verl",
    "from_vertex",
    "read_result",
    "read_trajectory_result",
    "to_anthropic",
    "to_atif",
    "to_eval_record",
    "to_gemini",
    "to_huggingface",
    "to_openai_chat",
    "to_vertex",
]
