"""Replays a session's continuation over the engine's own API.

The way of one replay: `plan` (pure: which sessions, what prompt, how many tokens) ->
`runner` (when, how many at once) -> an `engine.ShadowEngine` (`vllm_http`).
"""
