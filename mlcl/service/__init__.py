"""Runs commands on Ray: single runs, worker groups, sweeps and tables, all of which can be resumed."""

import os

# Set before Ray is imported, so that Ray sends no usage statistics and Tune writes no logger files.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
# Relative paths of a job mean the same in every process: actors stay in the folder of the command.
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
# Commands handle Ctrl-C themselves: Tune's handler would end a sweep without a record of the request.
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
# A training that is stopped early first ends its workers. If that takes longer than this, Tune fails the
# next training of the same actor.
os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", "120")
# Train polls its workers at this interval; the default of 2 s would be added to short runs.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# Tune's own tables would land on standard output, which is for results; verbose=0 silences the old kind only.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
