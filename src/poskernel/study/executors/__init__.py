"""Where units are worked on beside processes of this machine: a Dask cluster, jobs of Slurm."""

from poskernel.study.executors.choice import opened

__all__ = ["opened"]
