# Says what a Python has, as one line of JSON. Frameworks are looked for, not imported: that would take
# seconds. Runs on any Python, so that one that is too old can say so.
import json
import sys


def found(name):
    from importlib import metadata, util

    # The folder in which the command was called is not what will be imported from.
    sys.path[:] = [folder for folder in sys.path if folder]
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:  # a folder without code looks like a package
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(name)  # such as onnxruntime-gpu
        return metadata.version(names[0]) if names else "of unknown version"


def answer():
    facts = {"path": sys.executable, "version": list(sys.version_info[:3])}
    if sys.version_info < (3, 10):
        return facts
    facts["packages"] = dict((name, found(name)) for name in sys.argv[1:])
    try:
        import grampus

        facts["grampus"] = grampus.__version__
    except Exception as error:  # whatever it is, it is what a worker would meet
        missing = isinstance(error, ImportError) and getattr(error, "name", None) == "grampus"
        facts["missing" if missing else "broken"] = "%s: %s" % (type(error).__name__, error)
    return facts


print(json.dumps(answer()))
