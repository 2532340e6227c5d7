"""What users of Grampus can call, found by its signatures: a new argument cannot be forgotten by a test."""

import inspect

import grampus as gp
from grampus import callbacks, collective, columns, images, metrics, models, nn, optim, shards, triggers

MODULES = (callbacks, collective, columns, images, metrics, models, nn, optim, shards, triggers)
_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _ours(found):
    return callable(found) and (getattr(found, "__module__", None) or "").startswith("grampus")


def _callables():
    named = [(gp, "gp"), *((each, f"gp.{each.__name__.rpartition('.')[2]}") for each in MODULES)]
    for module, prefix in named:
        for name in module.__all__:
            found = getattr(module, name)
            if not _ours(found):
                continue
            if not inspect.isclass(found):
                yield f"{prefix}.{name}", found
            elif not issubclass(found, BaseException) and not inspect.isabstract(found):
                yield f"{prefix}.{name}", found
                for method, value in inspect.getmembers(found, _ours):
                    if not method.startswith("_") and not inspect.isclass(value):
                        yield f"{prefix}.{name}.{method}", value


def _parameters(function):
    """Those that have a name, also where others may be passed by any."""
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.kind in _NAMED and each.name != "self"]


#: Names as users write them, and what they call.
CALLABLES = {name: function for name, function in _callables() if _parameters(function)}


def keywords(function):
    """Names of arguments."""
    return [each.name for each in _parameters(function)]


def takes_others(function):
    """Whether arguments of any name can be passed, as those of a function that it calls."""
    parameters = inspect.signature(function).parameters.values()
    return any(each.kind is each.VAR_KEYWORD for each in parameters)


def options():
    """Pairs of a callable and an argument that has a default; each callable by its shortest name alone."""
    seen = set()
    for name, function in sorted(CALLABLES.items(), key=lambda item: (len(item[0]), item[0])):
        code = inspect.unwrap(getattr(function, "__func__", function))
        if code in seen:
            continue
        seen.add(code)
        for each in _parameters(function):
            if each.default is not each.empty:
                yield name, each.name
