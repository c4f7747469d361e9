# Read a release in R: the GeoPackage with sf, the matrix from the CSV file, and a map of where trips start.
#
#   Rscript examples/readers/read_release.R release origins.png

library(sf)

arguments <- commandArgs(trailingOnly = TRUE)
release <- arguments[1]
picture <- arguments[2]

zones <- st_read(file.path(release, "release.gpkg"), layer = "zones", quiet = TRUE)
lines <- st_read(file.path(release, "release.gpkg"), layer = "flows", quiet = TRUE)
# Zone codes are text; check.names keeps the names of slice columns as they are.
flows <- read.csv(file.path(release, "flows.csv"), colClasses = c(origin_zone = "character", destination_zone = "character"),
                  check.names = FALSE)
stopifnot(nrow(lines) == nrow(flows), sum(lines$trips) == sum(flows$trips), st_crs(zones) == st_crs(4326))

# A pair without a row is not published: there were no trips, or too few. So the matrix has NA there, not 0.
matrix <- with(flows, tapply(trips, list(origin_zone, destination_zone), sum))

starts <- aggregate(trips ~ origin_zone, flows, sum)
zones$starts_per_km2 <- starts$trips[match(zones$zone, starts$origin_zone)] / zones$area_km2
png(picture, width = 1000, height = 800)
plot(zones["starts_per_km2"], main = "Trips that start, by km²", logz = TRUE)
invisible(dev.off())

cat(sprintf("%d trips in %d cells, %d x %d zones, %.0f %% of the pairs not published\n", sum(flows$trips), nrow(flows),
            nrow(matrix), ncol(matrix), 100 * mean(is.na(matrix))))
