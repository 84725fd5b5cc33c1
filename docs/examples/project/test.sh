. ./greet.sh
[ "$(greet Ada)" = "Hello, Ada!" ] || { echo "wrong greeting: $(greet Ada)"; exit 1; }
echo "all greetings are right"
