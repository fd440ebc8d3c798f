//! The main job with nothing in its way: what the demo does, step by step.
