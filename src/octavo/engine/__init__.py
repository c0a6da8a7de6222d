"""Running a model: one thread that batches, computes, samples and answers."""
