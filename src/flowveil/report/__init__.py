"""What is said about a release: plain data (`summary`), and pages made from nothing else (`html`)."""
