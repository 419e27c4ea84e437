"""The steps of the lifecycle, a file each, named as the tasks of its DAG."""
