"""The searches: each lets a few things happen, and those in every order."""

from __future__ import annotations

from tests.explorer.model import RUNNING, SUCCEEDED, App, Budget, Setting

ALL_ENDS = ("ok", "fails", "hook")
FOREIGN = ("start", "start stamped", "overwrite", "overwrite all", "take back", "terminate", "forget state")

USED = App(stamp=20, mark=20, phase=SUCCEEDED, history=((1, 1),))
"""An Application that another Promotion was promoted to before."""

SETTINGS = (
    Setting(
        "nobody else, much breaks",
        ends=ALL_ENDS,
        budget=Budget(crashes=2, unknowns=2, aborts=1, timeouts=1),
        lag=2,
        twice=True,
    ),
    Setting(
        "one foreign act of any kind, everything breaks once",
        (*FOREIGN, "retarget", "delete", "skip"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, unknowns=1, aborts=1),
        twice=True,
    ),
    Setting(
        "two foreign acts, and an abort",
        tuple(act for act in FOREIGN if act != "terminate"),
        ALL_ENDS,
        Budget(acts=2, aborts=1),
        first=USED,
    ),
    Setting(
        "two foreign acts, and a crash or an unknown outcome",
        ("start", "start stamped", "overwrite all", "take back", "forget state"),
        ALL_ENDS,
        Budget(acts=2, crashes=1, unknowns=1),
    ),
    Setting(
        "a watch that is behind",
        ("start stamped", "take back"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, aborts=1),
        lag=2,
        first=USED,
    ),
    Setting(
        "a watch that misses an ending",
        ("start", "start stamped"),
        ("ok", "fails"),
        Budget(acts=1, unknowns=1, aborts=1),
        lag=3,
    ),
    Setting(
        "a frozen watch",
        ("take back", "overwrite", "start"),
        ("ok", "hook"),
        Budget(acts=1, aborts=1),
        lag=2,
        frozen_watch=True,
    ),
    Setting(
        "new attempts after a wrong revision",
        ("retarget", "take back", "start stamped"),
        ("ok",),
        Budget(acts=3, unknowns=1),
        first=USED,
    ),
    Setting("a new attempt that is refused", ("retarget", "take back", "skip"), ("ok",), Budget(acts=2)),
    Setting(
        "a history of one entry",
        ("start", "start stamped", "take back"),
        ("ok", "fails"),
        Budget(acts=2, crashes=1),
        kept=1,
        first=USED,
    ),
    Setting(
        "foreign terminations, and an abort",
        ("terminate", "take back", "forget state"),
        ALL_ENDS,
        Budget(acts=2, unknowns=2, aborts=1),
        twice=True,
    ),
    Setting(
        "the Application is deleted and created again",
        ("delete", "start stamped"),
        ("ok", "fails"),
        Budget(acts=2, unknowns=1, aborts=1),
        first=USED,
    ),
    Setting(
        "the Promotion is deleted",
        ("start", "overwrite", "take back", "forget state"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, unknowns=1, deletions=1),
    ),
    Setting(
        "the step has had its time, detach",
        ("start stamped", "take back", "overwrite"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, unknowns=2, timeouts=1),
        lag=1,
    ),
    Setting(
        "the step has had its time, terminate",
        ("terminate", "take back", "start", "overwrite"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, unknowns=1, timeouts=1),
        terminates=True,
    ),
    Setting(
        "the stamp annotation is removed",
        ("unstamp", "start"),
        ALL_ENDS,
        Budget(acts=2, crashes=1),
    ),
    Setting(
        "an abort that is given up",
        ("take back", "start stamped", "overwrite"),
        ALL_ENDS,
        Budget(acts=2, aborts=1, patience=1),
    ),
    Setting(
        "Argo CD's controller is restarted",
        ("take back", "start", "terminate"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, aborts=1, restarts=1),
    ),
    Setting(
        "what a real Kargo started, and an abort",
        ("start", "take back", "overwrite", "terminate"),
        ALL_ENDS,
        Budget(acts=1, crashes=1, aborts=1, patience=1),
        adopts=True,
        first=App(op=1, target=True),
    ),
    Setting(
        "what a real Kargo started, and two foreign acts",
        ("start", "start stamped", "take back", "overwrite all"),
        ALL_ENDS,
        Budget(acts=2, crashes=1),
        adopts=True,
        first=App(op=1, mark=1, phase=RUNNING, good=True, target=True, stamp=20),
    ),
    Setting(
        "an ApplicationSet removes the annotation, and one foreign act",
        FOREIGN,
        ("ok", "hook"),
        Budget(acts=1, crashes=1, aborts=1),
        owned=True,
    ),
    Setting(
        "an ApplicationSet removes the annotation, and two foreign acts",
        ("start", "take back", "forget state"),
        ("ok", "fails"),
        Budget(acts=2, crashes=1),
        owned=True,
        first=USED,
    ),
    Setting(
        "an ApplicationSet removes the annotation, and an abort is given up",
        ("start", "take back"),
        ("ok", "hook"),
        Budget(acts=1, crashes=1, aborts=1, patience=1),
        owned=True,
    ),
    Setting(
        "an ApplicationSet removes the annotation of an Application that was used",
        ("start", "take back"),
        ("ok", "hook"),
        Budget(acts=1, crashes=1, aborts=1, patience=1),
        owned=True,
        first=USED,
    ),
    Setting(
        "two attempts, an abort that is given up, and onAbort: revert",
        ("retarget", "take back", "start"),
        ("ok", "hook"),
        Budget(acts=2, crashes=1, aborts=1, patience=1),
        reverts=True,
    ),
    Setting(
        "two attempts, and the step has had its time, detach",
        ("retarget", "take back"),
        ("ok", "hook"),
        Budget(acts=2, crashes=1, aborts=1, timeouts=1),
    ),
    Setting(
        "two attempts, and the step has had its time, terminate",
        ("retarget", "take back"),
        ("ok", "hook"),
        Budget(acts=2, crashes=1, aborts=1, timeouts=1),
        terminates=True,
    ),
    Setting(
        "an ApplicationSet removes the annotation, and the final patch comes again",
        ("start",),
        ("ok",),
        Budget(acts=1, crashes=1),
        owned=True,
        twice=True,
        first=USED,
    ),
)
