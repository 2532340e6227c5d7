"""Options whose effect other tests show: the name of the test for each, and those that need none."""

from public_api import options

# What Grampus itself passes: users get these objects from functions.
INTERNAL = {
    "gp.Cluster": "made by Cluster.local, ssh, spark and ray",
    "gp.History": "made by fit",
    "gp.Shards": "made by its class methods and the readers",
    "gp.TrainingOperator": "made by the worker; subclasses override methods",
    "gp.metrics.Meter.update": "a protocol",
    "gp.Estimator": "the arguments of from_torch, from_native and from_lightning",
}
# Options that have none, and why they are there.
WITHOUT = {
    ("gp.Estimator.get_params", "deep"): "scikit-learn passes it to every estimator",
    ("gp.shards.StringIndexer.category_encode", "broadcast"): "where an index is kept, which nobody sees",
    ("gp.shards.StringIndexer.encode_string", "broadcast"): "where an index is kept, which nobody sees",
}
# Before a test that shows only that a value is refused: such a test is no case.
REFUSED = "refused: "
# Before a table, or a test with one, whose keys are the arguments.
TABLE = "table: "
# Options of which no test shows an effect, and why.
ONLY_REFUSED = {
    (name, option): "an engine on several hosts that has it is needed to see it"
    for name in ("gp.init", "gp.Cluster.spark", "gp.Cluster.ray")
    for option in ("address", "port")
} | {("gp.Cluster.ray", option): "Ray would be started by it" for option in ("master", "cores_per_worker")}
# Callables that are another's, or pass their arguments on to it.
EQUAL = {
    **dict.fromkeys(
        ("gp.Cluster.local", "gp.Cluster.ssh", "gp.Cluster.spark", "gp.Cluster.ray"), ("init", "session_for")
    ),
    "gp.init": ("session_for",),
    "gp.Cluster.run": ("run",),
    "gp.Estimator.update_scheduler": ("update_schedulers",),
    "gp.TrainingOperator.update_scheduler": ("update_schedulers",),
}
# Helpers of tests that pass their arguments on, by file.
HELPERS = {
    "test_audit.py": {"estimator": "from_torch"},
    "test_collective_options.py": {"scattered": "scatter", "reduced_into": "reduce_scatter"},
    "test_csv_pandas.py": {"same": "read_csv"},
    "test_directions.py": {"line": "from_torch", "fitted": "fit"},
    "test_estimator_exact.py": {"estimator": "from_torch", "fitted": "from_torch"},
    "test_estimator_parameters.py": {"line": "from_torch"},
    "test_lightning.py": {"estimator": "from_lightning"},
    "test_native_optimizers.py": {"estimator": "from_native"},
    "test_operators.py": {"estimator": "from_torch", "gan": "from_torch"},
    "test_options.py": {
        "encoded": "category_encode",
        "epochs": "EarlyStopping",
        "kind": "MinMaxScaler StandardScaler StringIndexer",
        "order": "to_torch",
        "steps": "fit",
        "trained": "from_torch",
    },
    "test_precision.py": {"estimator": "from_torch"},
    "test_recovery.py": {"trained": "fit"},
    "test_slow_workers.py": {"trained": "fit"},
}

_CLUSTER = {
    "workers": "test_preload.py::test_a_preloaded_module_is_imported_once",
    "threads": "test_preload.py::test_threads_can_be_told",
    "preload": "test_preload.py::test_a_preloaded_module_is_imported_once",
    "log_dir": "test_wrong_use.py::test_a_log_folder_holds_a_file_per_rank",
    "start_timeout": "test_preload.py::test_a_start_that_takes_too_long_is_given_up",
    "heartbeat_timeout": "test_deaths.py::test_a_stopped_worker_is_given_up_in_time",
}
_ENGINE = {
    "cores_per_worker": (
        "on_spark/test_losses.py::test_no_slot_for_a_replacement_is_named_and_the_run_goes_on_later",
        "refused: table: test_engine.py::test_what_is_asked_for_wrongly_starts_nothing",
    ),
    "address": "refused: on_spark/test_workers.py::test_a_driver_that_executors_cannot_reach_is_named",
    "port": "refused: on_spark/test_workers.py::test_a_driver_that_executors_cannot_reach_is_named",
}
_SPARK = {
    "gpus_per_worker": "on_spark/test_gpus.py::test_gpus_are_asked_for_and_seen_by_their_workers_alone",
    "master": (
        "on_spark/programs/test_sessions.py::PROGRAM",
        "refused: table: test_engine.py::test_what_is_asked_for_wrongly_starts_nothing",
    ),
    "session": "on_spark/test_losses.py::test_a_loss_changes_nothing",
    **dict.fromkeys(
        ("memory", "conf"),
        (
            "on_spark/programs/test_sessions.py::PROGRAM",
            "refused: on_spark/test_workers.py::test_other_settings_of_a_session_that_runs_are_refused",
        ),
    ),
}
_BLOCK = "test_collective_options.py::unblocked"
_COLLECTIVE = "test_collective_options.py::flipped"
_PANDAS = "table: test_tables.py::test_options_mean_what_they_mean_to_pandas"
_INDEXER = "test_shards_scalers.py::test_indices_by_appearance_with_a_limit_and_split"
_LANES = "test_estimator_exact.py::test_equal_weights_history_and_answers_with_1_2_3_and_4_workers"
_SCHEDULER = "test_estimator_parameters.py::test_the_scheduler_steps_each_epoch_or_each_batch"
CITED = {
    "gp.init": {
        **_CLUSTER,
        **_ENGINE,
        **_SPARK,
        "cluster": "test_run.py::test_a_cluster_made_by_hand_serves_run",
    },
    "gp.Cluster.local": _CLUSTER,
    "gp.Cluster.run": {"workers": "test_run.py::test_fewer_workers_than_the_cluster_has"},
    "gp.run": {"workers": "test_run.py::test_fewer_workers_than_the_cluster_has"},
    "gp.Cluster.ssh": {
        **_CLUSTER,
        "command": "test_wrong_use.py::test_a_command_that_is_not_there",
        "python": "test_wrong_use.py::over_a_shell",
        "address": "test_wrong_use.py::over_a_shell",
    },
    "gp.Cluster.spark": {**_CLUSTER, **_ENGINE, **_SPARK},
    "gp.Cluster.ray": {
        **_CLUSTER,
        **_ENGINE,
        "gpus_per_worker": (
            "on_ray/test_placement.py::test_gpus_are_asked_for_and_seen_by_their_workers_alone",
        ),
        "cores_per_worker": "refused: table: test_engine.py::test_what_is_asked_for_wrongly_starts_nothing",
        "master": "refused: on_ray/test_workers.py::test_a_second_connection_is_refused",
    },
    "gp.Checkpoint": {
        "path": "test_options.py::test_the_mode_of_a_checkpoint_says_which_is_the_best",
        "every": "test_estimator_resume.py::test_a_damaged_checkpoint_is_passed_over",
        "keep": "test_estimator_saved.py::test_old_checkpoints_go",
        "best": "test_directions.py::test_the_best_checkpoint_of_a_crossentropy_is_that_of_the_least",
        "mode": "test_options.py::test_the_mode_of_a_checkpoint_says_which_is_the_best",
        "on_error": "test_recovery.py::test_a_checkpoint_that_cannot_be_written_does_not_end_the_run",
        "on_driver_loss": (
            "test_driver_loss.py::DRIVER",
            "refused: test_estimator_wrong_use.py::test_a_checkpoint_that_is_none",
        ),
    },
    "gp.Estimator.from_torch": {
        "config": "test_estimator_parameters.py::test_config_reaches_all_creators",
        "workers": _LANES,
        "model_dir": "test_audit.py::test_without_asking_there_is_no_ledger",
        "seed": "test_options.py::test_settings_of_estimators_change_the_weights",
        "lanes": "test_options.py::test_settings_of_estimators_change_the_weights",
        "threads_per_lane": "test_estimator_exact.py::test_threads_per_lane_are_those_of_torch",
        "precision": (
            "test_precision.py::test_half_precision_keeps_weights_and_promises",
            "refused: test_precision.py::test_settings_of_precision_and_device",
        ),
        "device": "test_precision.py::test_settings_of_precision_and_device",
        "loss": "test_estimator_parameters.py::test_config_reaches_all_creators",
        "metrics": "test_directions.py::test_the_score_of_an_error_rises_as_the_model_improves",
        "scheduler": _SCHEDULER,
        "backend": "test_estimator_exact.py::test_torch_distributed_leaves_no_process_group",
        "scheduler_step_freq": _SCHEDULER,
        "loss_weight": "test_estimator_exact.py::test_a_lane_that_weighs_nothing_counts_as_zero",
        "training_operator_cls": "test_operators.py::test_two_models_with_two_optimizers_learn_in_step",
        "initialization_hook": "test_operators.py::test_the_hook_is_called_once_on_every_worker",
        "workers_per_node": "test_operators.py::test_so_many_workers_on_each_node",
    },
    "gp.Estimator.from_lightning": {
        "loss_weight": "test_lightning.py::test_a_weight_makes_ignored_labels_those_of_the_whole_batch",
    },
    "gp.Estimator.from_native": {
        "sharded": "test_native_optimizers.py::test_a_memory_that_is_divided_is_healed"
    },
    "gp.Estimator.fit": {
        "y": "test_options.py::test_labels_may_stand_beside_the_rows",
        "epochs": "test_estimator_exact.py::test_two_fits_are_one",
        "batch_size": "test_options.py::test_arguments_of_fit_change_the_run",
        "validation_data": "test_options.py::test_arguments_of_fit_change_the_run",
        "feature_cols": "test_estimator_data.py::test_columns_of_a_dict_and_of_a_frame",
        "label_cols": "test_estimator_data.py::test_columns_of_a_dict_and_of_a_frame",
        "callbacks": "test_directions.py::test_early_stopping_waits_for_a_crossentropy_to_fall",
        "checkpoint": "test_estimator_saved.py::test_old_checkpoints_go",
        "resume": "test_estimator_resume.py::test_a_checkpoint_may_lie_elsewhere_and_be_named",
        "max_steps": "test_options.py::test_arguments_of_fit_change_the_run",
        "max_failures": "test_recovery.py::test_no_more_losses_than_allowed",
        "max_preemptions": "test_recovery.py::test_no_more_preemptions_than_allowed",
        "min_workers": "test_elastic.py::test_a_run_that_cannot_have_its_least_workers_ends_with_the_reason",
        "audit": "test_audit.py::trained",
        "step_timeout": ("test_hangs.py::fit", "test_hangs.py::test_validation_that_goes_on_is_no_hang"),
        "slow_worker": (
            "test_slow_workers.py::test_a_slow_worker_gives_lanes_away",
            "test_slow_workers.py::test_a_slow_worker_is_replaced",
            "refused: table: test_slow_workers.py::test_a_policy_that_is_none_is_refused",
        ),
        "order_by": (
            "on_spark/test_frames.py::test_shards_are_trained_on_as_their_frame_is",
            "refused: test_engine.py::test_an_order_is_for_frames_alone",
        ),
        "info": "test_operators.py::test_numbers_are_means_over_rows_and_info_arrives",
        "profile": "test_operators.py::test_profiles_say_how_long_parts_take",
        "reduce_results": "test_operators.py::test_results_of_each_worker",
    },
    "gp.Estimator.evaluate": {
        "y": "test_options.py::test_labels_may_stand_beside_the_rows",
        "batch_size": "test_estimator_data.py::test_any_number_of_rows_with_any_number_of_workers",
        "feature_cols": "test_estimator_data.py::test_columns_of_a_dict_and_of_a_frame",
        "label_cols": "test_estimator_data.py::test_columns_of_a_dict_and_of_a_frame",
        "num_steps": "test_operators.py::test_the_first_steps_are_all_that_is_evaluated",
        "info": "test_operators.py::test_validation_and_prediction_of_ones_own",
        "profile": "test_operators.py::test_profiles_say_how_long_parts_take",
        "metrics": "test_operators.py::test_metrics_of_one_evaluation",
    },
    "gp.Estimator.predict": {
        "batch_size": "test_batches.py::test_predictions_stay_with_their_rows",
        "feature_cols": "test_batches.py::test_predictions_stay_with_their_rows",
        "out": "test_batches.py::test_predictions_stay_with_their_rows",
        "output_cols": "test_output_columns.py::test_outputs_are_columns_with_the_names_that_are_given",
    },
    "gp.Estimator.score": {
        "y": "test_options.py::test_labels_may_stand_beside_the_rows",
        "batch_size": (
            "test_options.py::test_the_size_of_batches_of_a_score_is_that_of_its_evaluation",
            "refused: test_options.py::test_a_size_that_is_none_is_refused_by_score",
        ),
    },
    "gp.Estimator.save": {
        "format": (
            "test_formats.py::test_torch_reads_the_distributed_checkpoint",
            "test_formats.py::test_a_folder_as_hugging_face_has_it",
        ),
        "example": "test_formats.py::test_onnx_files_answer_as_the_model_does",
    },
    "gp.Estimator.load": {
        "loss": "test_operators.py::test_a_loss_may_come_with_the_weights",
        "best": "test_directions.py::test_the_best_checkpoint_of_a_crossentropy_is_that_of_the_least",
    },
    "gp.Estimator.shutdown": {"force": "test_options.py::test_workers_of_init_are_ended_by_force_alone"},
    "gp.Estimator.update_scheduler": {"metric": "test_options.py::test_a_metric_is_for_plateaus_alone"},
    "gp.TrainingOperator.update_scheduler": {
        "metric": "test_options.py::test_a_metric_is_for_plateaus_alone"
    },
    "gp.History.plot": {"path": "test_options.py::test_a_plot_is_saved_where_it_is_asked_for"},
    "gp.read_csv": {
        **dict.fromkeys(
            [
                "sep",
                "header",
                "names",
                "usecols",
                "dtype",
                "quotechar",
                "escapechar",
                "comment",
                "nrows",
                "na_values",
            ],
            _PANDAS,
        ),
        "keep_default_na": "test_csv_pandas.py::test_the_list_of_pandas_counts_or_not",
    },
    "gp.read_images": {
        "image_col": "test_batches.py::test_images_train",
        "label_col": "test_batches.py::test_images_train",
        "label_func": "test_batches.py::test_images_of_folders",
        "label_file": "test_read_images.py::test_labels_of_a_file",
        "steps": "test_batches.py::test_images_train",
        "num_shards": "test_options.py::test_pictures_are_cut_into_shards",
    },
    "gp.Shards.load": {
        "allow_pickle": "test_shards_files.py::test_other_objects_need_a_pickle_that_both_sides_allow"
    },
    "gp.Shards.save": {
        "allow_pickle": "test_shards_files.py::test_other_objects_need_a_pickle_that_both_sides_allow"
    },
    "gp.Shards.group_by": {
        "columns": "test_shards_tables.py::test_groups",
        "agg": "test_shards_tables.py::test_all_rows_are_one_group_without_columns",
        "join": "test_shards_tables.py::test_groups_joined_to_all_rows",
    },
    "gp.Shards.merge": dict.fromkeys(("how", "on"), "test_shards_tables.py::test_merging"),
    "gp.Shards.sample": dict.fromkeys(("replace", "weights", "random_state"), "test_shards.py::test_samples"),
    "gp.Shards.sort_values": dict.fromkeys(("by", "ascending"), "test_shards_tables.py::test_sorting"),
    "gp.Shards.stream": {"window": "test_options.py::test_a_window_changes_the_order_of_a_stream"},
    "gp.Shards.to_torch": {
        "shuffle": "test_options.py::test_loops_are_shuffled_by_the_seed",
        "seed": "test_options.py::test_loops_are_shuffled_by_the_seed",
        "feature_cols": "test_batches.py::test_columns_become_matrices_and_labels",
        "label_cols": "test_batches.py::test_columns_become_matrices_and_labels",
        "images": "test_options.py::test_pictures_are_cut_into_shards",
        "transform": "test_batches.py::test_transform_drop_last_and_threads",
        "threads": "test_batches.py::test_transform_drop_last_and_threads",
        "drop_last": "test_batches.py::test_transform_drop_last_and_threads",
        "on_error": "test_batches.py::test_rows_that_cannot_be_used",
    },
    "gp.shards.MinMaxScaler": {
        **dict.fromkeys(("min", "max", "outputCol"), "table: test_options.py::test_options_of_scalers"),
        "inputCol": "test_options.py::test_options_of_scalers",
    },
    "gp.shards.MinMaxScaler.setInputOutputCol": {"outputCol": "test_options.py::test_options_of_scalers"},
    "gp.shards.StandardScaler": {
        **dict.fromkeys(
            ("withMean", "withStd", "outputCol"), "table: test_options.py::test_options_of_scalers"
        ),
        "inputCol": "test_options.py::test_options_of_scalers",
    },
    "gp.shards.StringIndexer": {"inputCol": "test_options.py::test_options_of_indexers"},
    "gp.shards.StringIndexer.category_encode": {
        **dict.fromkeys(
            ["freq_limit", "order_by_freq", "sep", "sort_for_array", "keep_most_frequent"],
            "test_options.py::test_options_of_indexers",
        ),
        "do_split": _INDEXER,
    },
    "gp.shards.StringIndexer.encode_string": {
        **dict.fromkeys(["do_split", "sort_for_array", "keep_most_frequent"], _INDEXER),
        "sep": "test_options.py::test_options_of_indexers",
    },
    "gp.shards.StringIndexer.gen_string_idx": dict.fromkeys(
        ["freq_limit", "order_by_freq", "do_split", "sep"], "test_options.py::test_options_of_indexers"
    ),
    "gp.shards.set_memory_limit": {
        "spill": "test_shards_memory.py::test_what_is_past_the_limit_goes_to_disk_and_is_equal"
    },
    "gp.callbacks.EarlyStopping": {
        "monitor": "test_directions.py::test_early_stopping_waits_for_a_crossentropy_to_fall",
        "patience": "test_options.py::test_options_of_early_stopping",
        "min_delta": "test_options.py::test_options_of_early_stopping",
        "mode": "test_options.py::test_options_of_early_stopping",
        "start": "test_options.py::test_options_of_early_stopping",
    },
    "gp.callbacks.GradientNorm": {"every": "test_trackers.py::told"},
    "gp.callbacks.LearningRates": {"every": "test_options.py::test_rates_are_logged_every_few_steps"},
    "gp.callbacks.MLflow": {
        "experiment": "test_options.py::test_a_run_of_mlflow_is_named",
        "run_name": "test_options.py::test_a_run_of_mlflow_is_named",
        "tracking_uri": "test_trackers.py::test_a_file_that_names_no_run_is_as_none",
        "every": "test_trackers.py::test_mlflow_gets_all_steps_of_a_fast_model_in_few_calls",
        "tags": "test_trackers.py::told",
    },
    "gp.callbacks.ModelGraph": {"example": "test_trackers.py::told"},
    "gp.callbacks.Progress": {
        "show": "test_operators.py::test_progress_can_be_hidden",
        "clock": "test_progress.py::show",
    },
    "gp.callbacks.WandB": dict.fromkeys(
        ("project", "name", "every", "mode"), "test_trackers.py::test_options_of_wandb"
    ),
    "gp.callbacks.TensorBoard": {
        "log_dir": "test_loggers.py::test_tensorboard_writes_every_nth_step",
        "every": "test_loggers.py::test_tensorboard_writes_every_nth_step",
    },
    "gp.collective.form": {
        "deadline": "test_collective.py::test_a_worker_that_does_something_else_is_named_after_the_deadline"
    },
    "gp.collective.new_group": {
        "deadline": "test_collective.py::test_a_group_of_some_waits_for_as_long_as_its_deadline"
    },
    "gp.collective.Handle.wait": {
        "timeout": "test_checkpoint_store.py::test_a_wait_has_an_end_and_hears_ctrl_c"
    },
    "gp.columns.Pad": dict.fromkeys(("value", "truncate"), "test_columns.py::CASES"),
    "gp.columns.Scale": {"offset": "test_columns.py::CASES"},
    "gp.images.ToFloat": {"scale": "test_images.py::test_floats_are_those_of_the_formula"},
    "gp.nn.Embedding": {"padding_idx": "test_native_layers.py::test_embeddings_answer_as_in_pytorch"},
    "gp.nn.Input": {"name": "test_options.py::test_an_input_is_named_in_the_model_and_in_errors"},
    "gp.triggers.Or.fires": dict.fromkeys(
        ("loss", "score"), "table: test_triggers.py::test_each_fires_where_it_should_and_says_why"
    ),
}
for _name, _option in options():
    _place, _, _method = _name.rpartition(".")
    if _place in ("gp.collective", "gp.collective.Group") and _name not in CITED:
        CITED[_name] = {}
    if _place in ("gp.collective", "gp.collective.Group") and _option not in CITED[_name]:
        CITED[_name][_option] = _BLOCK if _option == "block" else _COLLECTIVE
