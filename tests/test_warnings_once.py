"""A warning that every worker gives is shown once, and still in every log."""

import warnings

import grampus as gp


def warn(text, ranks):
    if gp.rank() in ranks:
        warnings.warn(text, UserWarning, stacklevel=1)


def test_a_warning_of_all_workers_is_shown_once(capfd, tmp_path):
    gp.init(workers=3, log_dir=tmp_path)
    gp.run(warn, "the same everywhere", (0, 1, 2))
    gp.run(warn, "on one of them", (2,))
    err = capfd.readouterr().err
    assert err.count("UserWarning: the same everywhere") == 1
    assert err.count("UserWarning: on one of them") == 1
    # The line of the source that belongs to each is shown with it.
    assert err.count("  warnings.warn(text") == 2
    for rank in range(3):
        assert "UserWarning: the same everywhere" in (tmp_path / f"rank-{rank}.log").read_text()


def test_other_lines_are_shown_as_often_as_they_are_written(capfd):
    gp.init(workers=2)

    def write():
        import sys

        print("  the same line", file=sys.stderr)
        print("file.py:3: UserWarning: on standard output")

    gp.run(write)
    found = capfd.readouterr()
    assert found.err.count("the same line") == found.out.count("on standard output") == 2


def test_a_rank_that_warns_twice_is_shown_twice(capfd):
    gp.init(workers=2)

    def warn_again():
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("again", UserWarning, stacklevel=1)

    gp.run(warn_again)
    assert capfd.readouterr().err.count("UserWarning: again") == 2


def test_a_new_cluster_warns_anew(capfd):
    for _ in range(2):
        with gp.Cluster.local(2) as cluster:
            cluster.run(warn, "once a cluster", (0, 1))
        assert capfd.readouterr().err.count("UserWarning: once a cluster") == 1
