"""Calls of raw stubs, with the mark that says whether an answer is shown again."""

REPLAYED = ("openshell-replayed", "true")


def call(method, request):
    """The response, and whether it was marked as a replay."""
    response, call = method.with_call(request)
    return response, REPLAYED in [(entry.key, entry.value) for entry in call.initial_metadata()]
