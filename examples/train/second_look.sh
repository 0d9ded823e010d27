#!/bin/sh
# An agent that knows nothing of assay: like most programs, it finds its model by OPENAI_BASE_URL
# and OPENAI_API_KEY.
#
# The question comes in as text. The model answers it, is asked "?" and answers again.
set -eu

ask() {
    reply=$(curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" \
        --header "Authorization: Bearer $OPENAI_API_KEY" \
        --header "Content-Type: application/json" \
        --data "{\"model\": \"any\", \"messages\": [$1]}")
    answer=${reply#*\"content\":\"}
    answer=${answer%%\"*}
}

read -r question || true
messages="{\"role\": \"user\", \"content\": \"$question\"}"
ask "$messages"
ask "$messages, {\"role\": \"assistant\", \"content\": \"$answer\"},
    {\"role\": \"user\", \"content\": \"?\"}"
printf '%s\n' "$answer"
