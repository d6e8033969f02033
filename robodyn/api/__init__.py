"""What users call: `Dynamics`, its queries, rollouts and simulation, rules of derivatives."""
