# Greets somebody by name.
greet() {
  echo "Helo, $1!"
}
