"""What tests of several rooms are run on: random trees and flows, small surveys, small releases to
tamper with."""
