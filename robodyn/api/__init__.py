"""The public interface: `Dynamics`, its queries, rollouts and simulation, and derivative rules."""
