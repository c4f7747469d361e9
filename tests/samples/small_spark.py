"""A Spark that starts soon and reads little."""

from __future__ import annotations

#: Its settings.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # What is compiled for a few rows takes longer to compile than to run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: The same as arguments of the command line, for processes that start their own.
QUICK = " ".join(f"--conf '{name}={value}'" for name, value in SMALL.items()) + " pyspark-shell"
