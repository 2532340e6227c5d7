"""Start Ray with two actors, call a no-op on each, stop."""

import ray

# As Ray's documentation advises for a small local run: no dashboard, and no more workers than are asked for.
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


@ray.remote
class Worker:
    def run(self):
        return None


workers = [Worker.remote() for _ in range(2)]
ray.get([worker.run.remote() for worker in workers])
ray.shutdown()
