"""The execution side: computes the token ids of a step from its StepInput."""
