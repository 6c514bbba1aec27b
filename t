M required;M required a=b;M required a="b";M required a='b c';M required a=5;M required a="5";M required a=5b;M required a=b5;M required a=-5;M required a=a-b_c$d.e;M required a=bM a=b;M REQUIRED a=b;M required a=b; N required;M required a;M required a=;M required a==b;M required a="b\"c\\d\ne\101f\x";M required a="bM required a="b
c";M required // x
 a=b;M required /* x */ a=b;M required a=b/c;M required a=b#c; M	required
 a = b ;
M required a=é;M required a="é";M required "a"="b";"M" required a=b;M "required" a=b;   ;M;M required a=b c=d;M required a=b a=c;M required user_bob="x" user_alice='y';M required a=b,;M required a=b:c;M required a=b; xM required a=1.5;M required a=.;M required a@b=c;M required a=true;M required a="";M required a="\u0041";M required a="\377";M required a="\400";M required a="\8";com.x.$M required a=b;M required 5=b;M required a=_;M required a=$;M required a="b"c=d;M required a="x" // ; 
;M required a="/x";M required a="b;c";M required ,a=b;M required a=-x;M required -a=b;M required a=b'c';M required a="b\
c";M required a=".";M required .a=b;